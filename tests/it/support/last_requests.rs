//! Requests that lie in a server's sockets when it is asked to stop. Tests of two packages include
//! this file.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

/// How many connections the server has accepted before, and how many wait to be accepted.
const OF_EACH: usize = 100;

/// Holds a server up, sends a request on each of 200 connections, asks it to stop, and lets it go
/// on. Returns how many requests were not answered. `signal` sends the server a signal.
pub(crate) fn unanswered(address: SocketAddr, signal: impl Fn(&str)) -> usize {
    let connect = || {
        let client = TcpStream::connect(address).expect("it listens");
        let timeout = Some(Duration::from_secs(120));
        client.set_read_timeout(timeout).expect("not zero");
        client
    };
    let mut clients: Vec<TcpStream> = (0..OF_EACH).map(|_| connect()).collect();
    for client in &mut clients {
        client.write_all(REQUEST).expect("it is open");
        let mut response = Vec::new();
        while !response.ends_with(b"hello\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).expect("it answers");
            response.extend(byte);
        }
    }
    signal("-STOP");
    clients.extend((0..OF_EACH).map(|_| connect()));
    for client in &mut clients {
        client.write_all(REQUEST).expect("it is open");
    }
    signal("-TERM");
    signal("-CONT");
    let is_answered = |client: &mut TcpStream| {
        let mut response = String::new();
        // An error is a connection that was reset, perhaps after the response.
        let _ = client.read_to_string(&mut response);
        response.contains("HTTP/1.1 200 ") && response.contains("hello\n")
    };
    let answered = clients.iter_mut().map(is_answered);
    answered.filter(|&is_answered| !is_answered).count()
}
