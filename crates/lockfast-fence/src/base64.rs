//! How the JSON gateway of etcd writes bytes.

/// A JSON string in base 64, with its quotes.
pub(crate) fn string(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut json = String::from("\"");
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) & 63;
            // One byte fills two digits, two fill three.
            json.push(if digit > group.len() { '=' } else { char::from(DIGITS[index as usize]) });
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_in_base_64() {
        let table = [
            (&b""[..], "\"\""),
            (b"f", "\"Zg==\""),
            (b"fo", "\"Zm8=\""),
            (b"foo", "\"Zm9v\""),
            (b"\xff\xfe\xfd\xfc", "\"//79/A==\""),
        ];
        for (given, expected) in table {
            assert_eq!(string(given), expected);
        }
    }
}
