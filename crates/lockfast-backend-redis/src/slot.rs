//! Which part of a cluster a key belongs to.

/// How many slots a cluster has.
pub(crate) const COUNT: u16 = 16384;

/// The slot of a key: that of the part between the first braces, if there is something in them.
pub(crate) fn of_key(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty());
    crc16(tag.unwrap_or(key).as_bytes()) % COUNT
}

/// The slot of a lock, unless its name keeps its bookkeeping from being in the same one.
pub(crate) fn of_lock(prefix: &str, name: &str) -> Option<u16> {
    let key = format!("{prefix}{name}");
    let slot = of_key(&key);
    // An empty tag is none, so that each key of the bookkeeping would be in another slot.
    let is_tag = !key.starts_with('}');
    (is_tag && of_key(&format!("lockfast:{{{key}}}:queue")) == slot).then_some(slot)
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0_u16;
    for byte in bytes {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in
            [("foo", 12182), ("a{foo}b", 12182), ("{foo}{bar}", 12182), ("bar", 5061)]
        {
            assert_eq!(of_key(key), slot, "{key}");
        }
        assert_eq!(of_key("{}x"), crc16(b"{}x") % COUNT);
    }

    #[test]
    fn names_that_would_be_torn_apart_are_found() {
        for name in ["a", "a b", "a{b", "{", "orders/1"] {
            assert_eq!(of_lock("p:", name), Some(of_key(&format!("p:{name}"))), "{name}");
        }
        for name in ["a}b", "{a}", "x{a}y", "{}", "a{}", "}"] {
            assert_eq!(of_lock("", name), None, "{name}");
        }
    }
}
