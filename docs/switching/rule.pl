#!/usr/bin/env perl
# Rewrites Rust files in place so that they use `tickwheel::time` instead of `tokio::time`: perl rule.pl FILE..
#
# 1. The path `tokio::time` becomes `tickwheel::time`, in `use` lines and elsewhere. Comments stay.
# 2. `use tokio::{net::TcpStream, time};` becomes two: `use tokio::{net::TcpStream}; use tickwheel::{time};`
#
# Prints a line for each file that it has changed: the path, how many lines name `tokio::time`, and how many lists
# of the second kind it has split.
use strict;
use warnings;

for my $path (@ARGV) {
    open my $in, '<', $path or die "$path: $!";
    my $before = do { local $/; <$in> };
    close $in;

    my $lines = () = $before =~ m{^(?!\s*//).*\btokio::time\b}mg;
    my $split = 0;
    my $after = $before;
    $after =~ s{^(?!\s*//)(.*)}{ $1 =~ s/\btokio::time\b/tickwheel::time/gr }mge;
    # A list has braces inside, one level or two deep.
    my $inner = qr/(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*/;
    $after =~ s{^([ \t]*)((?:pub(?:\([a-z ]+\))?[ ]+)?use[ ]+(?:::)?)tokio::\{($inner)\};}{
        my ($indent, $use, $list) = ($1, $2, $3);
        my (@time, @other);
        for my $item (items($list)) {
            push @{ $item =~ /^time\b/ ? \@time : \@other }, $item;
        }
        if (!@time) {
            "$indent${use}tokio::{$list};";
        } else {
            $split++;
            my $rest = @other ? "$indent${use}tokio::{" . join(', ', @other) . '};' : '';
            my $ours = "${use}tickwheel::{" . join(', ', @time) . '};';
            # One line for both.
            $rest eq '' ? "$indent$ours" : "$rest $ours";
        }
    }mgex;
    next if $after eq $before;

    open my $out, '>', $path or die "$path: $!";
    print $out $after;
    close $out;
    print "$path $lines $split\n";
}

# The items of a list, which are separated by commas outside braces.
sub items {
    my @items = ('');
    my $depth = 0;
    for my $char (split //, $_[0]) {
        $depth++ if $char eq '{';
        $depth-- if $char eq '}';
        if ($char eq ',' && $depth == 0) {
            push @items, '';
        } else {
            $items[-1] .= $char;
        }
    }
    s/^\s+|\s+$//g for @items;
    return grep { $_ ne '' } @items;
}
