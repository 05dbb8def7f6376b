//! The position of a hit among all hits of a search, for cursors.

use std::cmp::Ordering;

use keepsake_core::{MeaningReason, MemoryPath, StoreId};
use uuid::Uuid;

use crate::cursor::Place;

/// How the hits of a search are scored. All pages of a search have the same scoring,
/// because scores of different kinds cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scoring {
    /// By words and meaning.
    Fused,
    /// By words only.
    Lexical(MeaningReason),
}

impl Scoring {
    fn encode(self) -> u8 {
        let reason = match self {
            Self::Fused => return 0,
            Self::Lexical(reason) => reason,
        };
        let place = MeaningReason::ALL.iter().position(|known| *known == reason);
        place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(u8::MAX)
    }

    fn decode(byte: u8) -> Option<Self> {
        match usize::from(byte).checked_sub(1) {
            None => Some(Self::Fused),
            Some(place) => MeaningReason::ALL.get(place).copied().map(Self::Lexical),
        }
    }
}

/// The position of a hit in the result: ordered by score, best first, then by
/// the ids of the stores, then by path.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HitPosition {
    pub(super) score: f64,
    pub(super) store_id: StoreId,
    pub(super) path: MemoryPath,
}

impl HitPosition {
    pub(super) fn order(&self, other: &Self) -> Ordering {
        (other.score.total_cmp(&self.score))
            .then(self.store_id.cmp(&other.store_id))
            .then_with(|| self.path.cmp(&other.path))
    }
}

/// The last hit of a page, and how the page was scored.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PageEnd {
    pub(super) hit: HitPosition,
    pub(super) scoring: Scoring,
}

impl Place for PageEnd {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.scoring.encode()];
        bytes.extend(self.hit.score.to_bits().to_be_bytes());
        bytes.extend_from_slice(self.hit.store_id.uuid().as_bytes());
        bytes.extend_from_slice(self.hit.path.as_str().as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (scoring, rest) = bytes.split_first()?;
        let (score, rest) = rest.split_first_chunk()?;
        let (store_id, path) = rest.split_first_chunk()?;
        let hit = HitPosition {
            score: f64::from_bits(u64::from_be_bytes(*score)),
            store_id: StoreId::from_uuid(Uuid::from_bytes(*store_id)),
            path: MemoryPath::from_trusted(std::str::from_utf8(path).ok()?.to_owned()),
        };
        Some(Self { hit, scoring: Scoring::decode(*scoring)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_of_each_scoring_is_read_back() {
        let hit = HitPosition {
            score: 0.75,
            store_id: StoreId::from_uuid(Uuid::from_u128(7)),
            path: MemoryPath::parse("/notes/a.md").unwrap(),
        };
        let lexical = MeaningReason::ALL.map(Scoring::Lexical);
        for scoring in lexical.into_iter().chain([Scoring::Fused]) {
            let end = PageEnd { hit: hit.clone(), scoring };
            assert_eq!(PageEnd::decode(&end.encode()), Some(end));
        }
        let mut unknown = PageEnd { hit, scoring: Scoring::Fused }.encode();
        unknown[0] = 200;
        assert_eq!(PageEnd::decode(&unknown), None);
    }
}
