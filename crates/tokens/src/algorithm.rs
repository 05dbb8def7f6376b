//! The accepted signature algorithms.

use jsonwebtoken::Algorithm as Jwa;

/// The signature algorithm of a token; `none` and HMAC are not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256, by a key of 2,048 bits or more.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// `EdDSA`, by an Ed25519 key.
    EdDsa,
}

impl Algorithm {
    /// Reads the exact `alg` of a header.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" => Some(Self::EdDsa),
            _ => None,
        }
    }

    /// The algorithm in the verification library.
    pub(crate) const fn jwa(self) -> Jwa {
        match self {
            Self::Rs256 => Jwa::RS256,
            Self::Es256 => Jwa::ES256,
            Self::EdDsa => Jwa::EdDSA,
        }
    }
}
