//! Counts for human readers: `1,234,567`.

/// Writes a count with a comma before every three digits.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_three_digits_have_a_comma() {
        assert_eq!(
            [0, 999, 1_000, 123_456, 1_234_567].map(grouped),
            ["0", "999", "1,000", "123,456", "1,234,567"]
        );
    }

    proptest! {
        #[test]
        fn nothing_but_commas_is_added(count: u64) {
            let text = grouped(count);
            prop_assert_eq!(text.replace(',', ""), count.to_string());
            prop_assert!(text.split(',').skip(1).all(|group| group.len() == 3));
        }
    }
}
