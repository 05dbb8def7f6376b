//! The text of an error with its causes.

use std::error::Error;

/// An error's text with all its causes, each named once.
pub fn causes(error: &dyn Error) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let cause = error.to_string();
        // Some errors repeat their cause; others only say that there is one.
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
        next = error.source();
    }
    text
}
