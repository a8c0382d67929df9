//! The calls kept, and the trace ids they are found by.

use super::run::is_trace;

#[test]
fn a_64_bit_id_is_the_low_half_of_a_128_bit_one() {
    let long = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    let mut short = long;
    short[..8].fill(0);
    assert!(is_trace(&long, &long) && is_trace(&short, &long) && is_trace(&long, &short));
    let mut other = long;
    other[0] = 9;
    assert!(!is_trace(&other, &long));
    assert!(is_trace(&short, &other));
}
