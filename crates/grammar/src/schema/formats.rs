//! Dates, times and names of hosts as expressions that hold nothing but those that exist.
//!
//! The compiler's own let through the 29th of February of any year, a leap second in any minute and names of any length,
//! which validators refuse (RFC 3339, 5.7; RFC 1123, 2.1; RFC 5321, 4.5.3.1). Years are 1000 to 2999, and letters of
//! dates are upper case.

const MONTHS: &str = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)\
                      |02-(?:0[1-9]|1[0-9]|2[0-8])";
const LEAP_YEARS: &str = "[12][0-9](?:0[48]|[2468][048]|[13579][26])|(?:1[26]|2[048])00";
const TIME: &str = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,9})?\
                    (?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";

/// At most 50 of the 63 letters that a label may have.
const LABEL: &str = "[a-zA-Z0-9]{1,16}(?:-[a-zA-Z0-9]{1,16}){0,2}";
/// Words of the part before the `@`, 62 of the 64 letters that it may have.
const ATOM: &str = "[a-zA-Z0-9_+-]{1,20}";

/// The pattern that stands for a format.
pub(super) fn pattern(format: &str) -> Option<String> {
    let date = format!("(?:[12][0-9]{{3}}-(?:{MONTHS})|(?:{LEAP_YEARS})-02-29)");
    match format {
        "date" => Some(format!("^{date}$")),
        "time" => Some(format!("^{TIME}$")),
        "date-time" => Some(format!("^{date}T{TIME}$")),
        "hostname" => Some(format!("^{LABEL}(?:[.]{LABEL}){{0,3}}$")),
        "email" => Some(format!("^{ATOM}(?:[.]{ATOM}){{0,2}}@{LABEL}(?:[.]{LABEL}){{1,3}}$")),
        _ => None,
    }
}
