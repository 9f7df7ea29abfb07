//! Map projections of grids, inverted: from steps along the axes to latitude and longitude in degrees.
//!
//! The equations are those of Snyder, *Map Projections: A Working Manual* (1987), for the ellipsoid; a sphere has eccentricity 0.

use std::f64::consts::{FRAC_PI_2, PI};

use super::{Pole, within_circle};

/// The shape of the earth in meters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ellipsoid {
    pub major: f64,
    pub minor: f64,
}

impl Ellipsoid {
    pub(crate) fn sphere(radius: f64) -> Self {
        Self { major: radius, minor: radius }
    }

    fn eccentricity(&self) -> f64 {
        let ratio = self.minor / self.major;
        (1.0 - ratio * ratio).max(0.0).sqrt()
    }

    /// `t` of equation (15-9).
    fn t(&self, latitude: f64) -> f64 {
        let e = self.eccentricity();
        let sine = e * latitude.sin();
        (0.5 * (FRAC_PI_2 - latitude)).tan() / ((1.0 - sine) / (1.0 + sine)).powf(0.5 * e)
    }

    /// `m` of equation (14-15): the radius of a parallel, relative to the major axis.
    fn m(&self, latitude: f64) -> f64 {
        let sine = self.eccentricity() * latitude.sin();
        latitude.cos() / (1.0 - sine * sine).sqrt()
    }

    /// The latitude of `t`, by equation (7-9).
    fn latitude(&self, t: f64) -> f64 {
        let e = self.eccentricity();
        let mut latitude = FRAC_PI_2 - 2.0 * t.atan();
        for _ in 0..15 {
            let sine = e * latitude.sin();
            let next = FRAC_PI_2 - 2.0 * (t * ((1.0 - sine) / (1.0 + sine)).powf(0.5 * e)).atan();
            let change = (next - latitude).abs();
            latitude = next;
            if change <= 1e-14 {
                break;
            }
        }
        latitude
    }
}

/// An angle in radians from −π to π.
fn wrapped_angle(angle: f64) -> f64 {
    if angle > PI {
        angle - 2.0 * PI
    } else if angle < -PI {
        angle + 2.0 * PI
    } else {
        angle
    }
}

/// Corner, steps and orientation of a projected grid: degrees and meters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MapFrame {
    pub earth: Ellipsoid,
    pub latitude: f64,
    pub longitude: f64,
    /// The meridian that is parallel to the y axis.
    pub orientation: f64,
    pub dx: f64,
    pub dy: f64,
}

/// Lambert's conformal conic projection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lambert {
    frame: MapFrame,
    /// Cone constant.
    n: f64,
    /// Scaled radius: ρ = scale · t^n.
    scale: f64,
    /// Position of the first point relative to the apex.
    x: f64,
    y: f64,
}

impl Lambert {
    /// A projection that is secant at two parallels.
    pub(crate) fn new(frame: MapFrame, parallels: (f64, f64)) -> Self {
        let earth = frame.earth;
        let (first, second) = (parallels.0.to_radians(), parallels.1.to_radians());
        let n = if (first - second).abs() < 1e-9 {
            first.sin()
        } else {
            (earth.m(first).ln() - earth.m(second).ln()) / (earth.t(first).ln() - earth.t(second).ln())
        };
        let scale = earth.major * earth.m(first) / (n * earth.t(first).powf(n));
        let radius = scale * earth.t(frame.latitude.to_radians()).powf(n);
        let angle = n * wrapped_angle((frame.longitude - frame.orientation).to_radians());
        Self { frame, n, scale, x: radius * angle.sin(), y: radius * angle.cos() }
    }

    /// The point after `i` steps along x and `j` along y.
    pub(crate) fn at(&self, i: f64, j: f64) -> (f64, f64) {
        let (x, y) = (self.x + i * self.frame.dx, self.y - j * self.frame.dy);
        let sign = self.n.signum();
        let radius = sign * x.hypot(y);
        if radius == 0.0 {
            return (90.0 * sign, 0.0);
        }
        let latitude = self.frame.earth.latitude((radius / self.scale).powf(1.0 / self.n));
        let longitude = (sign * x).atan2(sign * y) / self.n;
        (latitude.to_degrees(), within_circle(longitude.to_degrees() + self.frame.orientation))
    }
}

/// The polar stereographic projection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PolarStereographic {
    frame: MapFrame,
    /// 1 for the north pole, −1 for the south pole.
    sign: f64,
    /// ρ = scale · t.
    scale: f64,
    x: f64,
    y: f64,
}

impl PolarStereographic {
    /// A projection whose steps are true at a parallel.
    pub(crate) fn new(frame: MapFrame, parallel: f64, south: bool) -> Self {
        let (earth, sign) = (frame.earth, if south { -1.0 } else { 1.0 });
        let true_at = parallel.abs().to_radians();
        let scale = if (true_at - FRAC_PI_2).abs() > 1e-10 {
            earth.major * earth.m(true_at) / earth.t(true_at)
        } else {
            let e = earth.eccentricity();
            2.0 * earth.major / ((1.0 + e).powf(1.0 + e) * (1.0 - e).powf(1.0 - e)).sqrt()
        };
        let radius = scale * earth.t(sign * frame.latitude.to_radians());
        let angle = sign * (frame.longitude - frame.orientation).to_radians();
        Self { frame, sign, scale, x: sign * radius * angle.sin(), y: -sign * radius * angle.cos() }
    }

    /// The point after `i` steps along x and `j` along y.
    pub(crate) fn at(&self, i: f64, j: f64) -> (f64, f64) {
        let x = (self.x + i * self.frame.dx) * self.sign;
        let y = (self.y + j * self.frame.dy) * self.sign;
        let radius = x.hypot(y);
        let latitude = self.sign * self.frame.earth.latitude(radius / self.scale);
        let turn = if radius == 0.0 { 0.0 } else { self.sign * x.atan2(-y) };
        (latitude.to_degrees(), within_circle(turn.to_degrees() + self.frame.orientation))
    }
}

/// Mercator's projection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mercator {
    frame: MapFrame,
    /// Metres per radian.
    scale: f64,
    x: f64,
    y: f64,
}

impl Mercator {
    /// A projection whose steps are true at a parallel.
    pub(crate) fn new(frame: MapFrame, parallel: f64) -> Self {
        let scale = frame.earth.major * frame.earth.m(parallel.to_radians());
        let x = scale * wrapped_angle((frame.longitude - frame.orientation).to_radians());
        let y = -scale * frame.earth.t(frame.latitude.to_radians()).ln();
        Self { frame, scale, x, y }
    }

    /// The point after `i` steps along x and `j` along y.
    pub(crate) fn at(&self, i: f64, j: f64) -> (f64, f64) {
        let (x, y) = (self.x + i * self.frame.dx, self.y + j * self.frame.dy);
        let latitude = self.frame.earth.latitude((-y / self.scale).exp());
        let longitude = (x / self.scale).to_degrees() + self.frame.orientation;
        (latitude.to_degrees(), within_circle(longitude))
    }
}

/// The geographic position of a point of a rotated grid. Longitudes are from −180 to 180 before the rotation about the pole.
pub(crate) fn unrotate((latitude, longitude): (f64, f64), pole: &Pole) -> (f64, f64) {
    let (latitude, longitude) = (latitude.to_radians(), longitude.to_radians());
    let tilt = -(90.0 + pole.latitude).to_radians();
    let turn = -pole.longitude.to_radians();
    let x = longitude.cos() * latitude.cos();
    let y = longitude.sin() * latitude.cos();
    let z = latitude.sin();
    let east = tilt.cos() * x + tilt.sin() * z;
    let (u, v) = (turn.cos() * east + turn.sin() * y, turn.cos() * y - turn.sin() * east);
    let up = (tilt.cos() * z - tilt.sin() * x).clamp(-1.0, 1.0);
    (up.asin().to_degrees(), v.atan2(u).to_degrees() - pole.angle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(latitude: f64, longitude: f64, earth: Ellipsoid) -> MapFrame {
        MapFrame { earth, latitude, longitude, orientation: 10.0, dx: 2500.0, dy: 2500.0 }
    }

    fn close(found: (f64, f64), latitude: f64, longitude: f64) {
        assert!((found.0 - latitude).abs() < 1e-9 && (found.1 - longitude).abs() < 1e-9, "{found:?}");
    }

    /// The first point of a grid is the one that its definition states, on a sphere and an ellipsoid.
    #[test]
    fn the_first_point_is_restored() {
        for earth in
            [Ellipsoid::sphere(6_371_229.0), Ellipsoid { major: 6_378_137.0, minor: 6_356_752.314_2 }]
        {
            close(Lambert::new(frame(41.0, 352.0, earth), (45.0, 45.0)).at(0.0, 0.0), 41.0, 352.0);
            close(Lambert::new(frame(41.0, 3.0, earth), (30.0, 60.0)).at(0.0, 0.0), 41.0, 3.0);
            close(Lambert::new(frame(-41.0, 3.0, earth), (-30.0, -60.0)).at(0.0, 0.0), -41.0, 3.0);
            close(PolarStereographic::new(frame(52.0, 300.0, earth), 60.0, false).at(0.0, 0.0), 52.0, 300.0);
            close(PolarStereographic::new(frame(-52.0, 30.0, earth), -60.0, true).at(0.0, 0.0), -52.0, 30.0);
            close(Mercator::new(frame(-12.0, 40.0, earth), 20.0).at(0.0, 0.0), -12.0, 40.0);
        }
    }

    #[test]
    fn rotation_moves_the_pole() {
        let pole = Pole { latitude: -40.0, longitude: 15.0, angle: 0.0 };
        close(unrotate((-90.0, 0.0), &pole), -40.0, 15.0);
        let none = Pole { latitude: -90.0, longitude: 0.0, angle: 0.0 };
        close(unrotate((12.0, 34.0), &none), 12.0, 34.0);
    }
}
