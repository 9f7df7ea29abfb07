//! Color maps.

use super::ColorMap;

/// Color of cells that are NaN or infinite.
pub const NOT_FINITE: [u8; 3] = [110, 110, 110];

impl ColorMap {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Viridis, Self::Magma, Self::Inferno, Self::Cividis, Self::Rdbu, Self::Greys];

    /// Its name, as in options of commands.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// The color map of a name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|map| map.name() == name)
    }

    /// Returns the color of a position from 0 to 1.
    pub fn at(self, place: f64) -> [u8; 3] {
        let map = match self {
            Self::Viridis => colorous::VIRIDIS,
            Self::Magma => colorous::MAGMA,
            Self::Inferno => colorous::INFERNO,
            Self::Cividis => colorous::CIVIDIS,
            Self::Rdbu => colorous::RED_BLUE,
            Self::Greys => colorous::GREYS,
        };
        // This map goes from light to dark.
        let place = if self == Self::Greys { 1.0 - place } else { place };
        let color = map.eval_continuous(place.clamp(0.0, 1.0));
        [color.r, color.g, color.b]
    }
}
