//! As much of JSONata as tells whether an expression is whole: its brackets, quotes and comments close.

/// What does not close, and where (counted in characters, from 1); none when all do.
pub(super) fn unclosed(expression: &str) -> Option<String> {
    let mut open: Vec<(char, usize)> = Vec::new();
    let mut characters = (1..).zip(expression.chars()).peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' | '\'' | '`' if !skip_quoted(&mut characters, character) => {
                return Some(format!("the quote {character} at {at} does not close"));
            }
            '/' if characters.peek().is_some_and(|(_, next)| *next == '*')
                && !skip_comment(&mut characters) =>
            {
                return Some(format!("the comment at {at} does not close"));
            }
            '(' => open.push((')', at)),
            '[' => open.push((']', at)),
            '{' => open.push(('}', at)),
            ')' | ']' | '}' if open.pop().map(|(closing, _)| closing) != Some(character) => {
                return Some(format!("the {character} at {at} closes nothing"));
            }
            _ => {}
        }
    }
    open.pop().map(|(closing, at)| format!("the bracket at {at} misses its {closing}"))
}

/// Goes behind the closing quote; whether there is one.
fn skip_quoted(characters: &mut impl Iterator<Item = (usize, char)>, quote: char) -> bool {
    while let Some((_, character)) = characters.next() {
        if character == quote {
            return true;
        }
        // In backticks, which quote names, a backslash is itself.
        if character == '\\' && quote != '`' {
            characters.next();
        }
    }
    false
}

/// Goes behind the end of a comment whose `/` was read; whether there is one.
fn skip_comment(characters: &mut impl Iterator<Item = (usize, char)>) -> bool {
    characters.next();
    let mut star = false;
    for (_, character) in characters {
        if star && character == '/' {
            return true;
        }
        star = character == '*';
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_expressions_pass() {
        for expression in [
            "",
            "status = \"payment-pending\"",
            "items[price > 100].{\"id\": id, 'n': quantity}",
            "$contains(`odd \\ name`, \"a \\\" ) b\") /* ( [ */ and (1 + 2) / 3 > 0",
        ] {
            assert_eq!(unclosed(expression), None, "{expression}");
        }
    }

    #[test]
    fn what_does_not_close_is_named_with_its_place() {
        for (expression, place) in [
            ("status = \"handling", "quote \" at 10"),
            ("items[price > 100", "bracket at 6 misses its ]"),
            ("(a]", "] at 3 closes nothing"),
            ("a)", ") at 2 closes nothing"),
            ("a /* b", "comment at 3"),
            ("a /*/", "comment at 3"),
            ("\"\\\"", "quote \" at 1"),
        ] {
            assert!(unclosed(expression).is_some_and(|message| message.contains(place)), "{expression}");
        }
    }
}
