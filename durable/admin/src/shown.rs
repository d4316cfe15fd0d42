//! How bytes and counts are shown. Bytes of any codec are text where they are that, else
//! hexadecimal digits.

pub(crate) use hex::encode as hex;

/// Bytes in one line that changes nothing around it, of at most so many characters: text as it is,
/// but for characters that a terminal or a reader would take for something else.
pub(crate) fn line(bytes: &[u8], most: usize) -> String {
    let shown = match std::str::from_utf8(bytes) {
        Ok(text) => visible(text.chars().take(most.saturating_add(1)), code),
        Err(_) => format!("0x{}", hex(&bytes[..bytes.len().min(most)])),
    };
    match shown.char_indices().nth(most) {
        None => shown,
        Some((end, _)) => format!("{}… ({} bytes)", &shown[..end], bytes.len()),
    }
}

/// A text as it is shown.
pub(crate) fn text_line(text: &str, most: usize) -> String {
    line(text.as_bytes(), most)
}

/// A key as a [`line`](line()) that shows also if it is empty.
pub(crate) fn key_line(key: &[u8], most: usize) -> String {
    if key.is_empty() {
        return "(empty)".to_owned();
    }
    line(key, most)
}

/// The bytes of a whole [`line`](line()). Others may be shown as the same line.
pub(crate) fn from_line(line: &str) -> Vec<u8> {
    if let Some(bytes) = line.strip_prefix("0x").and_then(from_hex) {
        return bytes;
    }
    let (mut text, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once("\\u{") {
        let code = after.split_once('}').and_then(|(digits, after)| {
            let code = u32::from_str_radix(digits, 16).ok()?;
            Some((char::from_u32(code)?.to_string(), after))
        });
        let (part, after) = code.unwrap_or_else(|| ("\\u{".to_owned(), after));
        text = text + before + &part;
        rest = after;
    }
    (text + rest).into()
}

/// All of the bytes, on as many lines as they have.
pub(crate) fn whole(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text
            .split('\n')
            .map(|line| visible(line.chars(), code))
            .collect::<Vec<_>>()
            .join("\n"),
        Err(_) => format!("0x{}", hex(bytes)),
    }
}

/// The code of a character in a [`line`](line()).
fn code(c: char) -> String {
    c.escape_unicode().to_string()
}

/// Writes the code of characters that do not show: controls, and those that turn the direction or
/// have no width.
pub(crate) fn visible(text: impl Iterator<Item = char>, code: impl Fn(char) -> String) -> String {
    let mut visible = String::new();
    for c in text {
        if c.is_control() || is_invisible(c) {
            visible += &code(c);
        } else {
            visible.push(c);
        }
    }
    visible
}

fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// The bytes of hexadecimal digits, with or without `0x`.
pub(crate) fn from_hex(digits: &str) -> Option<Vec<u8>> {
    hex::decode(digits.strip_prefix("0x").unwrap_or(digits)).ok()
}

/// A number, as an estimate if it is one.
pub(crate) fn count(number: u64, is_estimate: bool) -> String {
    let about = if is_estimate { "~" } else { "" };
    format!("{about}{}", separated(number))
}

/// A number with commas between its thousands.
pub(crate) fn separated(number: u64) -> String {
    let digits = number.to_string();
    let parts = digits.as_bytes().rchunks(3).rev();
    let parts: Vec<_> = parts.map(String::from_utf8_lossy).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_hides_nothing_and_ends() {
        assert_eq!(
            line("a\u{1b}[2J\u{202e}b\n".as_bytes(), 100),
            "a\\u{1b}[2J\\u{202e}b\\u{a}"
        );
        assert_eq!(line(&vec![b'x'; 1 << 20], 3), "xxx… (1048576 bytes)");
        assert_eq!(line(&[0xff; 1000], 6), "0xffff… (1000 bytes)");
        assert_eq!(line("üüü".as_bytes(), 3), "üüü");
    }

    #[test]
    fn character_that_turns_the_text_or_has_no_width_is_shown_as_its_code() {
        for (first, last) in [
            (0xad, 0xad),
            (0x61c, 0x61c),
            (0x115f, 0x1160),
            (0x180e, 0x180e),
            (0x200b, 0x200f),
            (0x2028, 0x202e),
            (0x2060, 0x206f),
            (0x3164, 0x3164),
            (0xfeff, 0xfeff),
            (0xffa0, 0xffa0),
            (0xfff9, 0xfffb),
            (0xe0000, 0xe007f),
        ] {
            for code in first..=last {
                let text = char::from_u32(code).expect("it is one").to_string();
                assert_eq!(text_line(&text, 100), format!("\\u{{{code:x}}}"));
            }
        }
    }

    #[test]
    fn line_is_read_back() {
        for bytes in [
            "a\u{1b}[2J\u{202e}b\n".as_bytes(),
            b"\xff\x01",
            b"\\u{",
            b"\\u{x}ab",
        ] {
            assert_eq!(from_line(&line(bytes, 100)), bytes);
        }
    }

    #[test]
    fn whole_text_keeps_its_lines_and_hides_nothing() {
        let text = "a\u{1b}[2J\u{202e}\n\tb\rc\r\nd\n";
        assert_eq!(
            whole(text.as_bytes()),
            "a\\u{1b}[2J\\u{202e}\n\\u{9}b\\u{d}c\\u{d}\nd\n"
        );
        let long = "x".repeat(1 << 16);
        assert_eq!(whole(long.as_bytes()), long);
        assert_eq!(whole(&[0xff, 1]), "0xff01");
    }

    #[test]
    fn numbers_have_separators() {
        let texts = [0, 999, 1_000, 123_456, 1_234_567].map(separated);
        assert_eq!(texts, ["0", "999", "1,000", "123,456", "1,234,567"]);
        assert_eq!(count(10_000, true), "~10,000");
    }

    #[test]
    fn hex_reads_what_it_writes() {
        assert_eq!(from_hex(&hex([0, 17, 255])), Some(vec![0, 17, 255]));
        assert_eq!(from_hex("0x0A"), Some(vec![10]));
        for wrong in ["1", "zz", "+1", "ü"] {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }
}
