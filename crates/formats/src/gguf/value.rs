//! The typed values of GGUF metadata.
//!
//! Arrays hold numbers side by side and strings in one text, so that a vocabulary of 262,144 pieces is three
//! allocations, not as many as it has pieces.

use std::fmt;

/// The type of a value or of an array's elements, with its number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the types")]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    const ALL: [ValueType; 13] = [
        ValueType::U8,
        ValueType::I8,
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::Bool,
        ValueType::String,
        ValueType::Array,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    /// The type with this number in a file.
    pub(crate) fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// The bytes of the shortest value.
    pub(crate) fn least_bytes(self) -> u64 {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => 1,
            ValueType::U16 | ValueType::I16 => 2,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 4,
            // A string's length; an array's type and length.
            ValueType::U64 | ValueType::I64 | ValueType::F64 | ValueType::String => 8,
            ValueType::Array => 12,
        }
    }

    /// The number in a file.
    pub(crate) fn id(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::String => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        })
    }
}

/// One value of the metadata.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the types")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    /// The type.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// The value of any integer type.
    pub fn as_integer(&self) -> Option<i128> {
        match *self {
            Value::U8(n) => Some(n.into()),
            Value::I8(n) => Some(n.into()),
            Value::U16(n) => Some(n.into()),
            Value::I16(n) => Some(n.into()),
            Value::U32(n) => Some(n.into()),
            Value::I32(n) => Some(n.into()),
            Value::U64(n) => Some(n.into()),
            Value::I64(n) => Some(n.into()),
            Value::F32(_) | Value::F64(_) | Value::Bool(_) | Value::String(_) | Value::Array(_) => None,
        }
    }
}

/// The type, and the value where that is one number; for error messages and listings.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(n) => write!(f, "the u8 {n}"),
            Value::I8(n) => write!(f, "the i8 {n}"),
            Value::U16(n) => write!(f, "the u16 {n}"),
            Value::I16(n) => write!(f, "the i16 {n}"),
            Value::U32(n) => write!(f, "the u32 {n}"),
            Value::I32(n) => write!(f, "the i32 {n}"),
            Value::F32(n) => write!(f, "the f32 {n}"),
            Value::Bool(b) => write!(f, "the bool {b}"),
            Value::String(text) => write!(f, "a string of {} bytes", text.len()),
            Value::Array(array) => write!(f, "an array of {} x {}", array.len(), array.element_type()),
            Value::U64(n) => write!(f, "the u64 {n}"),
            Value::I64(n) => write!(f, "the i64 {n}"),
            Value::F64(n) => write!(f, "the f64 {n}"),
        }
    }
}

/// Implements the way from plain values into [`Value`].
macro_rules! into_value {
    ($($type:ty, $from:ident => $value:expr;)*) => {
        $(
            impl From<$type> for Value {
                fn from($from: $type) -> Self {
                    $value
                }
            }
        )*
    };
}

into_value! {
    u8, number => Value::U8(number);
    i8, number => Value::I8(number);
    u16, number => Value::U16(number);
    i16, number => Value::I16(number);
    u32, number => Value::U32(number);
    i32, number => Value::I32(number);
    u64, number => Value::U64(number);
    i64, number => Value::I64(number);
    f32, number => Value::F32(number);
    f64, number => Value::F64(number);
    bool, truth => Value::Bool(truth);
    &str, text => Value::String(text.to_owned());
    String, text => Value::String(text);
    Strings, strings => Value::Array(Array::String(strings));
    Vec<u32>, numbers => Value::Array(Array::U32(numbers));
    Vec<i32>, numbers => Value::Array(Array::I32(numbers));
    Vec<f32>, numbers => Value::Array(Array::F32(numbers));
    Vec<bool>, bools => Value::Array(Array::Bool(bools));
}

/// The elements of an array. Arrays of arrays are not read: no model has them.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the types")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Strings),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Array {
    /// The type of the elements.
    pub fn element_type(&self) -> ValueType {
        match self {
            Array::U8(_) => ValueType::U8,
            Array::I8(_) => ValueType::I8,
            Array::U16(_) => ValueType::U16,
            Array::I16(_) => ValueType::I16,
            Array::U32(_) => ValueType::U32,
            Array::I32(_) => ValueType::I32,
            Array::F32(_) => ValueType::F32,
            Array::Bool(_) => ValueType::Bool,
            Array::String(_) => ValueType::String,
            Array::U64(_) => ValueType::U64,
            Array::I64(_) => ValueType::I64,
            Array::F64(_) => ValueType::F64,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(numbers) => numbers.len(),
            Array::I8(numbers) => numbers.len(),
            Array::U16(numbers) => numbers.len(),
            Array::I16(numbers) => numbers.len(),
            Array::U32(numbers) => numbers.len(),
            Array::I32(numbers) => numbers.len(),
            Array::F32(numbers) => numbers.len(),
            Array::Bool(bools) => bools.len(),
            Array::String(strings) => strings.len(),
            Array::U64(numbers) => numbers.len(),
            Array::I64(numbers) => numbers.len(),
            Array::F64(numbers) => numbers.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as `T`, where the array is of integers and all of them fit.
    pub(crate) fn as_integers<T: TryFrom<i128>>(&self) -> Option<Vec<T>> {
        fn convert<S: Copy + Into<i128>, T: TryFrom<i128>>(numbers: &[S]) -> Option<Vec<T>> {
            numbers.iter().map(|&number| T::try_from(number.into()).ok()).collect()
        }
        match self {
            Array::U8(numbers) => convert(numbers),
            Array::I8(numbers) => convert(numbers),
            Array::U16(numbers) => convert(numbers),
            Array::I16(numbers) => convert(numbers),
            Array::U32(numbers) => convert(numbers),
            Array::I32(numbers) => convert(numbers),
            Array::U64(numbers) => convert(numbers),
            Array::I64(numbers) => convert(numbers),
            Array::F32(_) | Array::F64(_) | Array::Bool(_) | Array::String(_) => None,
        }
    }
}

/// A list of strings in one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    // Invariant: ascending, on character boundaries of `text`, the last one its length.
    ends: Vec<usize>,
}

impl Strings {
    /// An empty list with room for `count` strings.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { text: String::new(), ends: Vec::with_capacity(count) }
    }

    /// Adds `text` as the last string.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no string.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `index`, or `None` where there are fewer.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.text[start..end])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|index| self.get(index).expect("the index is below the length"))
    }
}

impl<'a> FromIterator<&'a str> for Strings {
    fn from_iter<I: IntoIterator<Item = &'a str>>(strings: I) -> Self {
        let mut list = Self::default();
        for text in strings {
            list.push(text);
        }
        list
    }
}
