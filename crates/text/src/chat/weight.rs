//! How heavy a template's values are, counted as they are printed: a part that occurs twice weighs twice.
//!
//! `compiled` has each value weighed when it is made, so that no work on values needs more than `MAX_WEIGHT`.
//!
//! Knows no message.

use minijinja::value::{Rest, Tuple, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::{compiled, methods};

/// The heaviest value of a template, in bytes of text, with `PART` for each part of a list or dict.
pub(super) const MAX_WEIGHT: u64 = 1 << 23;
/// What one value weighs beside its text.
const PART: u64 = 16;
/// Deepest nesting; values are printed, compared and released by recursion.
const MAX_DEPTH: usize = 100;
/// How much weight is walked through for one unit of fuel.
const WEIGHT_PER_FUEL: u64 = PART;

/// Filters that look at no more of a value than its outside or its text.
const SHALLOW: [&str; 25] = [
    "abs",
    "attr",
    "capitalize",
    "count",
    "d",
    "default",
    "e",
    "escape",
    "first",
    "float",
    "indent",
    "int",
    "last",
    "length",
    "lower",
    "replace",
    "round",
    "safe",
    "title",
    "tojson",
    "trim",
    "upper",
    "wordcount",
    "bool",
    "items",
];
/// Tests that compare.
const COMPARING: [&str; 18] = [
    "eq",
    "equalto",
    "==",
    "ne",
    "!=",
    "lt",
    "lessthan",
    "<",
    "le",
    "<=",
    "gt",
    "greaterthan",
    ">",
    "ge",
    ">=",
    "in",
    "sameas",
    "divisibleby",
];

/// Adds what the checked instructions call.
pub(super) fn add_to(environment: &mut Environment<'_>) {
    environment.add_filter(compiled::WEIGH, |state: &State<'_, '_>, value: Value| {
        pay(state, &value)?;
        // A slice of a slice of a slice would be walked by recursion.
        let lazy =
            is_list(&value) && !value.is_tuple() && value.downcast_object_ref::<Vec<Value>>().is_none();
        Ok::<_, Error>(if lazy { Value::from(value.try_iter()?.collect::<Vec<_>>()) } else { value })
    });
    environment.add_filter(compiled::WEIGH_ASSIGNED, |state: &State<'_, '_>, value: Value| {
        if is_namespace(&value) {
            return Err(namespace_inside());
        }
        pay(state, &value)?;
        Ok(value)
    });
    environment.add_filter(compiled::PAY, |state: &State<'_, '_>, value: Value| {
        pay(state, &value)?;
        Ok::<_, Error>(value)
    });
    environment.add_filter(compiled::ADD, add);
    environment.add_filter(compiled::JOIN, join);
    environment.add_filter(compiled::REPEAT, repeat);
    environment.add_filter(compiled::FILTER, filter);
    environment.add_test(compiled::TEST, test);
}

/// Takes the fuel for a walk through the value, which must not be too heavy.
pub(super) fn pay(state: &State<'_, '_>, value: &Value) -> Result<u64, Error> {
    let mut weight = 0;
    let weighed = weigh(value, 0, &mut weight);
    // Texts are paid by the engine.
    if value.as_str().is_none() {
        state.consume_fuel(weight / WEIGHT_PER_FUEL)?;
    }
    weighed.map(|()| weight)
}

fn weigh(value: &Value, depth: usize, weight: &mut u64) -> Result<(), Error> {
    let text = value.as_str().map(str::len).or_else(|| value.as_bytes().map(<[u8]>::len));
    *weight = weight.saturating_add(text.unwrap_or(0) as u64).saturating_add(PART);
    check(*weight)?;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            check_depth(depth)?;
            for item in value.try_iter()? {
                check_inside(&item)?;
                weigh(&item, depth + 1, weight)?;
            }
        }
        ValueKind::Map => {
            check_depth(depth)?;
            for key in value.try_iter()? {
                let item = value.get_item(&key)?;
                check_inside(&item)?;
                weigh(&key, depth + 1, weight)?;
                weigh(&item, depth + 1, weight)?;
            }
        }
        ValueKind::Undefined
        | ValueKind::None
        | ValueKind::Bool
        | ValueKind::Number
        | ValueKind::String
        | ValueKind::Bytes
        | ValueKind::Plain
        | ValueKind::Invalid
        | _ => {}
    }
    Ok(())
}

fn check(weight: u64) -> Result<(), Error> {
    let reason = || format!("a value of the template is larger than {MAX_WEIGHT} bytes");
    if weight > MAX_WEIGHT { Err(invalid(reason())) } else { Ok(()) }
}

fn check_depth(depth: usize) -> Result<(), Error> {
    let reason = || format!("a value of the template is nested deeper than {MAX_DEPTH}");
    if depth >= MAX_DEPTH { Err(invalid(reason())) } else { Ok(()) }
}

/// A namespace changes, so that what holds one could grow after it was weighed.
fn check_inside(value: &Value) -> Result<(), Error> {
    if is_namespace(value) { Err(namespace_inside()) } else { Ok(()) }
}

fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

fn namespace_inside() -> Error {
    invalid("a namespace can't be part of another value".to_owned())
}

fn invalid(reason: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// `left + right`.
fn add(state: &State<'_, '_>, left: Value, right: Value) -> Result<Value, Error> {
    if let (Some(one), Some(other)) = (left.as_str(), right.as_str()) {
        check((one.len() + other.len()) as u64)?;
        return Ok(Value::from([one, other].concat()));
    }
    if is_list(&left) && is_list(&right) && left.is_tuple() == right.is_tuple() {
        check(pay(state, &left)? + pay(state, &right)?)?;
        let items = left.try_iter()?.chain(right.try_iter()?).collect();
        return Ok(list_like(&left, items));
    }
    arithmetic("+", (&left, &right), i128::checked_add, |one, other| one + other)
}

/// `left ~ right`.
fn join(state: &State<'_, '_>, left: Value, right: Value) -> Result<Value, Error> {
    let mut text = String::new();
    for value in [left, right] {
        match value.as_str() {
            Some(part) => text.push_str(part),
            None => {
                pay(state, &value)?;
                text.push_str(&value.to_string());
            }
        }
        check(text.len() as u64)?;
    }
    Ok(Value::from(text))
}

/// `left * right`.
fn repeat(state: &State<'_, '_>, left: Value, right: Value) -> Result<Value, Error> {
    let (repeated, count) = if is_number(&left) { (&right, &left) } else { (&left, &right) };
    let known = repeated.as_str().is_some() || is_list(repeated);
    let Some(count) = whole(count).filter(|_| known) else {
        return arithmetic("*", (&left, &right), i128::checked_mul, |one, other| one * other);
    };
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    if let Some(text) = repeated.as_str() {
        check((text.len() as u64).saturating_mul(count as u64))?;
        return Ok(Value::from(text.repeat(count)));
    }
    check(pay(state, repeated)?.saturating_mul(count as u64))?;
    let items: Vec<Value> = repeated.try_iter()?.collect();
    Ok(list_like(repeated, std::iter::repeat_n(items, count).flatten().collect()))
}

/// The operation on two numbers, exact on whole ones.
fn arithmetic(
    operator: &str,
    (left, right): (&Value, &Value),
    exact: fn(i128, i128) -> Option<i128>,
    rounded: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    if !is_number(left) || !is_number(right) {
        let (left, right) = (left.kind(), right.kind());
        return Err(invalid(format!(
            "tried to use {operator} operator on unsupported types {left} and {right}"
        )));
    }
    let float = |value: &Value| match whole(value) {
        Some(number) => Ok(number as f64),
        None => f64::try_from(value.clone()),
    };
    let (Some(one), Some(other)) = (whole(left), whole(right)) else {
        return Ok(Value::from(rounded(float(left)?, float(right)?)));
    };
    let result = exact(one, other);
    let result = result.ok_or_else(|| invalid(format!("unable to calculate {left} {operator} {right}")))?;
    Ok(i64::try_from(result).map_or_else(|_| Value::from(result), Value::from))
}

fn is_number(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
}

fn whole(value: &Value) -> Option<i128> {
    let whole = value.is_integer() || value.kind() == ValueKind::Bool;
    whole.then(|| i128::try_from(value.clone()).ok()).flatten()
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// A tuple of tuples, a list otherwise.
fn list_like(model: &Value, items: Vec<Value>) -> Value {
    if model.is_tuple() { Value::from(Tuple::from(items)) } else { Value::from(items) }
}

/// Calls the filter that the last argument names, once what it may walk through is paid.
fn filter(state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let (name, args) = named(args);
    let args = args.as_slice();
    if !SHALLOW.contains(&name.as_str()) {
        args.iter().try_for_each(|value| pay(state, value).map(|_| ()))?;
        if let Some(text) = args.first().and_then(Value::as_str) {
            check_text_filter(&name, text, &args[1..])?;
        }
    }
    match name.as_str() {
        "sum" => check_start(args)?,
        "join" => check_join(state, &args[0], args.get(1).and_then(Value::as_str).unwrap_or(""))?,
        "batch" | "slice" => check_counts(args)?,
        "replace" => {
            let text = args.first().and_then(Value::as_str).unwrap_or("");
            methods::check_replaced(text, &args[1..])?;
        }
        _ => {}
    }
    let unknown = |error: Error| match (error.kind(), error.detail()) {
        (ErrorKind::UnknownFilter, None) => {
            Error::new(ErrorKind::UnknownFilter, format!("filter {name} is unknown"))
        }
        _ => error,
    };
    state.apply_filter(&name, args).map_err(unknown)
}

fn test(state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>) -> Result<bool, Error> {
    let (name, args) = named(args);
    let args = args.as_slice();
    if COMPARING.contains(&name.as_str()) {
        args.iter().try_for_each(|value| pay(state, value).map(|_| ()))?;
    }
    let unknown = |error: Error| match (error.kind(), error.detail()) {
        (ErrorKind::UnknownTest, None) => {
            Error::new(ErrorKind::UnknownTest, format!("test {name} is unknown"))
        }
        _ => error,
    };
    state.perform_test(&name, args).map_err(unknown)
}

/// Refuses to take a text apart into too many pieces.
fn check_text_filter(name: &str, text: &str, rest: &[Value]) -> Result<(), Error> {
    match name {
        "split" => check_pieces(text, rest.first().and_then(Value::as_str)),
        "lines" => check_pieces(text, Some("\n")),
        "format" | "string" | "pprint" => Ok(()),
        _ => check(PART * text.chars().count() as u64),
    }
}

/// Refuses to split a text, at the separator or its spaces, into too many pieces.
pub(super) fn check_pieces(text: &str, separator: Option<&str>) -> Result<(), Error> {
    let pieces = match separator {
        Some(separator) => text.matches(separator).count(),
        None => text.split_whitespace().count(),
    };
    check(PART * pieces as u64)
}

/// Refuses to join so much that the text is too long.
pub(super) fn check_join(state: &State<'_, '_>, list: &Value, separator: &str) -> Result<(), Error> {
    let weight = pay(state, list)?;
    check(weight.saturating_add(weight / PART * separator.len() as u64))
}

/// Refuses a text of so many bytes.
pub(super) fn check_bytes(bytes: usize) -> Result<(), Error> {
    check(bytes as u64)
}

/// Refuses to fill a text with fields that make it too long.
pub(super) fn check_fields(state: &State<'_, '_>, text: &str, args: &[Value]) -> Result<(), Error> {
    let mut most = 0;
    for value in args {
        most = pay(state, value)?.max(most);
    }
    let fields = text.matches('{').count() as u64;
    check((text.len() as u64).saturating_add(fields.saturating_mul(most)))
}

/// A sum that starts with a list or a text would copy all that it has, with each item.
fn check_start(args: &[Value]) -> Result<(), Error> {
    let named = args.last().and_then(|options| options.get_attr("start").ok());
    let starts = args.get(2).into_iter().chain(named.as_ref());
    let grows =
        |start: &Value| matches!(start.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Iterable);
    match starts.into_iter().any(grows) {
        true => Err(invalid("sum adds numbers alone".to_owned())),
        false => Ok(()),
    }
}

fn check_counts(args: &[Value]) -> Result<(), Error> {
    let counts = args[1..].iter().filter_map(Value::as_usize);
    counts.max().map_or(Ok(()), |count| check(PART.saturating_mul(count as u64)))
}

/// The arguments without the name, which comes last.
fn named(args: Rest<ValueOrKwargs>) -> (String, Vec<Value>) {
    let mut args = args.into_values();
    let name = args.pop().expect("the name was added to the arguments");
    // The engine allows spaces inside of a name.
    let name = name.as_str().expect("the name is text").split_ascii_whitespace().collect();
    (name, args)
}
