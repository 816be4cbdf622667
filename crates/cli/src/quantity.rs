//! Numbers and named facts as people read them.

/// A line of a fact and what it is called.
pub(crate) fn entry(name: &str, fact: &str) -> String {
    // A name that fills its column keeps a space before its fact.
    format!("{name:<14} {fact}")
}

/// Bytes in binary units.
pub(crate) fn bytes(count: u64) -> String {
    scaled(count, 1024.0, &["bytes", "KiB", "MiB", "GiB", "TiB"])
}

/// Things in decimal units.
pub(crate) fn count(count: u64) -> String {
    scaled(count, 1000.0, &["", "K", "M", "G", "T", "P"])
}

fn scaled(count: u64, step: f64, units: &[&str]) -> String {
    let mut value = count as f64;
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let text =
        if unit == 0 { format!("{count} {}", units[0]) } else { format!("{value:.1} {}", units[unit]) };
    text.trim_end().to_owned()
}

/// `1 tensor`, `2 tensors`.
pub(crate) fn plural(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_scaled_and_small_ones_exact() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(1023), "1023 bytes");
        assert_eq!(bytes(98_362_432), "93.8 MiB");
        assert_eq!(count(999), "999");
        assert_eq!(count(134_515_008), "134.5 M");
    }
}
