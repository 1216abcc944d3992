//! Rounds weights to integers so that their sum is kept to within one half.

/// Rounds a series of weights; what one loses or gains by rounding is carried to the next.
///
/// Rounding each alone would lose every stack with an estimate under one half, and there may be thousands of
/// those.
#[derive(Debug, Default)]
pub(super) struct CarryRounder {
    carry: f64,
}

impl CarryRounder {
    /// The next weight as an integer; negative and non-finite weights count as zero.
    pub(super) fn round(&mut self, weight: f64) -> i64 {
        let exact = sane(weight) + self.carry;
        let rounded = exact.round().max(0.0);
        self.carry = exact - rounded;
        rounded as i64
    }
}

/// `weight`, or zero where it is negative or not finite.
pub(super) fn sane(weight: f64) -> f64 {
    if weight.is_finite() && weight > 0.0 { weight } else { 0.0 }
}
