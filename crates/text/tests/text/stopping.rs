//! Stop strings against a naive search, over every way to cut the stream.

use gannet_text::stop::{MAX_STOP_BYTES, MAX_STOPS, Stop, StopStrings};

/// Character by character: the first prefix of the text that ends with a stop string, and the longest such stop.
fn naive(text: &str, stops: &[&str]) -> (String, Option<Stop>) {
    for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
        let matching = stops.iter().enumerate().filter(|(_, stop)| text[..end].ends_with(*stop));
        if let Some((index, stop)) = matching.max_by_key(|(index, stop)| (stop.len(), usize::MAX - index)) {
            let start_bytes = end - stop.len();
            return (text[..start_bytes].to_owned(), Some(Stop { index, start_bytes }));
        }
    }
    (text.to_owned(), None)
}

fn streamed(pieces: &[&str], stops: &[&str]) -> (String, Option<Stop>) {
    let mut search = StopStrings::new(stops.iter().map(|stop| (*stop).to_owned()).collect()).unwrap();
    let mut text: String = pieces.iter().map(|piece| search.push(piece)).collect();
    let stop = search.stopped();
    text.push_str(&search.finish());
    (text, stop)
}

fn check(text: &str, stops: &[&str]) {
    let expected = naive(text, stops);
    let boundaries: Vec<usize> = (0..=text.len()).filter(|&at| text.is_char_boundary(at)).collect();
    let letters: Vec<&str> = boundaries.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
    assert_eq!(streamed(&letters, stops), expected, "{text:?} {stops:?} by letters");
    for &one in &boundaries {
        for &two in boundaries.iter().filter(|&&two| two >= one) {
            let pieces = [&text[..one], &text[one..two], &text[two..]];
            assert_eq!(streamed(&pieces, stops), expected, "{pieces:?} {stops:?}");
        }
    }
}

#[test]
fn the_stop_completed_first_wins_however_the_stream_is_cut() {
    check("Hello world", &[]);
    check("Hello world", &["xyz"]);
    check("Hello world", &["o w"]);
    check("Hello world", &["world", "wor"]);
    check("Hello world", &["Hello"]);
    check("abcabd", &["abd"]);
    check("aaab", &["aab"]);
    check("abcd", &["abcd", "bc"]);
    check("xabc", &["bc", "abc", "c"]);
    check("a\nUser:\nUs", &["\nUser:", "User"]);
    check("日本語のテキスト", &["語の", "の"]);
    check("ends with par", &["partial"]);
    check("\u{1F980}\u{1F981}", &["\u{1F981}"]);
    check("</s></s>", &["</s>"]);
}

#[test]
fn text_is_held_back_only_while_it_may_become_a_stop_string() {
    let mut search = StopStrings::new(vec!["\nUser:".to_owned()]).unwrap();
    assert_eq!(search.push("Hi\nUs"), "Hi");
    assert_eq!(search.push("ing it"), "\nUsing it");
    assert_eq!(search.push("\nUser"), "");
    assert_eq!(search.push(": more"), "");
    assert_eq!(search.stopped(), Some(Stop { index: 0, start_bytes: 11 }));
    assert_eq!(search.push("nothing comes after"), "");
    assert_eq!(search.finish(), "");
}

#[test]
fn stop_strings_are_bounded() {
    let refusal = |stops: Vec<String>| StopStrings::new(stops).unwrap_err().to_string();
    assert_eq!(
        refusal(vec!["a".to_owned(), String::new()]),
        "stop string 1 is empty; a stop string needs at least one character"
    );
    assert_eq!(
        refusal(vec!["a".to_owned(); MAX_STOPS + 1]),
        "the number of stop strings is 65, above the limit of 64"
    );
    assert_eq!(
        refusal(vec!["a".repeat(MAX_STOP_BYTES + 1)]),
        "a stop string's length in bytes is 4097, above the limit of 4096"
    );
}
