//! Gaussian latitudes: the roots of Legendre polynomials.

use tesseral_core::{Error, Result, alloc};

/// Largest supported number of parallels between a pole and the equator.
const ORDER: u64 = 1 << 16;

/// The latitudes of a Gaussian grid in degrees, from north to south.
///
/// # Errors
/// `Limit` for orders beyond 65,536.
pub(crate) fn latitudes(order: u64) -> Result<Vec<f64>> {
    if order == 0 || order > ORDER {
        return Err(Error::limit("the parallels of a Gaussian grid", order, ORDER));
    }
    let degree = 2 * order;
    let mut out = alloc::zeroed("coordinates", degree as usize)?;
    for k in 0..order {
        let latitude = root(k, degree as f64).asin().to_degrees();
        out[k as usize] = latitude;
        out[(degree - 1 - k) as usize] = -latitude;
    }
    Ok(out)
}

/// Root `k` of the Legendre polynomial of a degree, the largest first, by Newton's method.
fn root(k: u64, degree: f64) -> f64 {
    let mut x = (std::f64::consts::PI * (k as f64 + 0.75) / (degree + 0.5)).cos();
    for _ in 0..20 {
        // P(n) and P(n − 1) at x.
        let (mut p, mut before) = (1.0, 0.0);
        for n in 1..=degree as u64 {
            let n = n as f64;
            (p, before) = (((2.0 * n - 1.0) * x * p - (n - 1.0) * before) / n, p);
        }
        let slope = degree * (before - x * p) / (1.0 - x * x);
        let step = p / slope;
        x -= step;
        if step.abs() <= 4.0 * f64::EPSILON {
            break;
        }
    }
    x
}

/// Index of the latitude that is closest to `latitude`.
pub(crate) fn nearest(latitudes: &[f64], latitude: f64) -> u64 {
    let at = latitudes.partition_point(|own| *own > latitude);
    let closer = at > 0
        && latitudes.get(at).is_none_or(|own| (latitudes[at - 1] - latitude).abs() < (own - latitude).abs());
    (if closer { at - 1 } else { at }) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latitudes_are_roots() {
        // Roots of P2: ±1/√3.
        let two = latitudes(1).unwrap();
        assert!((two[0] - (1.0 / 3.0_f64.sqrt()).asin().to_degrees()).abs() < 1e-13);
        assert_eq!(two[1], -two[0]);
        let many = latitudes(32).unwrap();
        assert!(many.is_sorted_by(|a, b| a > b) && (many[0] - 87.863_798_839_232_63).abs() < 1e-11);
        assert_eq!(nearest(&many, 87.864), 0);
        assert_eq!(nearest(&many, -87.864), 63);
        assert!(latitudes(0).is_err() && latitudes(1 << 40).is_err());
    }
}
