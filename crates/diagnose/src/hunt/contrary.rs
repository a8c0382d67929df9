//! Owners with more than the whole excess. This happens if slow calls have less of something else than
//! ordinary calls do, such as the same wait under one name in slow calls and under another in ordinary ones.
//! An owner's time beyond the whole explains nothing: nobody accounts for four times the excess.

use super::shares::{FLOOR, Share};

/// Limits every owner to the whole of a difference between two groups.
pub fn within_the_whole<Key>(shares: &mut [(Key, Share)]) {
    for (_, share) in shares {
        share.mid = share.mid.min(1.0);
        share.low = share.low.min(share.mid - FLOOR);
        share.high = share.high.clamp(share.mid, 1.0 + FLOOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_four_times_of_an_excess() {
        let less = Share { low: -3.8, mid: -3.09, high: -2.4 };
        let mut shares = [("shared", Share { low: 3.37, mid: 4.09, high: 4.85 }), ("client", less)];
        within_the_whole(&mut shares);
        let (_, shared) = shares[0];
        assert_eq!(shared, Share { low: 1.0 - FLOOR, mid: 1.0, high: 1.0 + FLOOR });
        assert_eq!(shares[1].1, less);
    }

    #[test]
    fn what_is_within_the_whole_stays_as_it_is() {
        let before = [
            ("one", Share { low: 0.5, mid: 0.9, high: 1.0 }),
            ("less", Share { low: -0.3, mid: -0.1, high: 0.1 }),
        ];
        let mut shares = before;
        within_the_whole(&mut shares);
        assert_eq!(shares, before);
    }
}
