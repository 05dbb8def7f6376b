//! The position of a hit among all hits of a search, for cursors.

use std::cmp::Ordering;

use keepsake_core::{MeaningReason, MemoryPath, StoreId};
use uuid::Uuid;

use crate::cursor::{Place, digest};

/// How the hits of a search are scored. All pages of a search have the same scoring,
/// because scores of different kinds cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scoring {
    /// By words and meaning.
    Fused(ModelTag),
    /// By words only.
    Lexical(MeaningReason),
}

/// A hash of the id of the model whose vectors were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModelTag([u8; 4]);

impl ModelTag {
    pub(super) fn of(model: &str) -> Self {
        let [a, b, c, d, ..] = digest(&[model.as_bytes()]);
        Self([a, b, c, d])
    }
}

impl Scoring {
    fn encode(self) -> Vec<u8> {
        let reason = match self {
            Self::Fused(ModelTag(tag)) => return [[0].as_slice(), tag.as_slice()].concat(),
            Self::Lexical(reason) => reason,
        };
        let place = MeaningReason::ALL.iter().position(|known| *known == reason);
        vec![place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(u8::MAX)]
    }

    /// Returns the rest of the bytes, too.
    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (kind, rest) = bytes.split_first()?;
        match usize::from(*kind).checked_sub(1) {
            None => {
                let (tag, rest) = rest.split_first_chunk()?;
                Some((Self::Fused(ModelTag(*tag)), rest))
            }
            Some(place) => Some((Self::Lexical(*MeaningReason::ALL.get(place)?), rest)),
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
        self.order_to(other.score, other.store_id, &other.path)
    }

    /// The order of this hit and another one.
    pub(super) fn order_to(&self, score: f64, store_id: StoreId, path: &MemoryPath) -> Ordering {
        (score.total_cmp(&self.score)).then(self.store_id.cmp(&store_id)).then_with(|| self.path.cmp(path))
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
        let mut bytes = self.scoring.encode();
        bytes.extend(self.hit.score.to_bits().to_be_bytes());
        bytes.extend_from_slice(self.hit.store_id.uuid().as_bytes());
        bytes.extend_from_slice(self.hit.path.as_str().as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (scoring, rest) = Scoring::decode(bytes)?;
        let (score, rest) = rest.split_first_chunk()?;
        let (store_id, path) = rest.split_first_chunk()?;
        let hit = HitPosition {
            score: f64::from_bits(u64::from_be_bytes(*score)),
            store_id: StoreId::from_uuid(Uuid::from_bytes(*store_id)),
            path: MemoryPath::from_trusted(std::str::from_utf8(path).ok()?.to_owned()),
        };
        Some(Self { hit, scoring })
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
        let fused = Scoring::Fused(ModelTag::of("model-256"));
        for scoring in lexical.into_iter().chain([fused]) {
            let end = PageEnd { hit: hit.clone(), scoring };
            assert_eq!(PageEnd::decode(&end.encode()), Some(end));
        }
        let mut unknown = PageEnd { hit, scoring: fused }.encode();
        unknown[0] = 200;
        assert_eq!(PageEnd::decode(&unknown), None);
    }
}
