//! Foreign text in our own words: an error of somebody we told a secret may quote it.
//!
//! Held here: the secret is cut out before the text is (NEW-141). The other way round half of a secret would be left at
//! the end, and nobody who looks for the whole finds a half.

/// Shorter texts are no secrets, and cutting them would garble ordinary words.
const SHORTEST_SECRET: usize = 12;

/// At most `longest` characters of the text, without the secret.
#[must_use]
pub fn without(secret: &str, text: &str, longest: usize) -> String {
    let cut = |text: &str| text.chars().take(longest).collect();
    if secret.len() < SHORTEST_SECRET { cut(text) } else { cut(&text.replace(secret, "[redacted]")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef01234567";

    /// NEW-141, F28: a secret across the limit leaves nothing of itself.
    #[test]
    fn no_part_of_a_secret_is_left() {
        for before in 0..60 {
            let text = format!("{}{SECRET}{SECRET} end", "x".repeat(before));
            let excerpt = without(SECRET, &text, 50);
            assert!(!excerpt.contains("0123"), "{excerpt}");
            assert!(excerpt.chars().count() <= 50, "{excerpt}");
        }
        assert_eq!(without(SECRET, &format!("token {SECRET} unknown"), 50), "token [redacted] unknown");
        assert_eq!(without("", "öö", 1), "ö");
    }
}
