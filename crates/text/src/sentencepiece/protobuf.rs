//! A reader of protobuf messages, as much of the format as SentencePiece models need.
//!
//! A message is a list of fields: a number, a wire type and a value. Values are borrowed, nothing is allocated; a length
//! is checked against the bytes that are there; messages inside messages are read by whoever knows their meaning, so
//! that nothing here recurses. Source: the encoding page of the protobuf documentation.
//!
//! Knows no field's meaning.

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    pub(crate) value: FieldValue<'a>,
}

/// What a field holds, by its wire type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FieldValue<'a> {
    /// Integers, truth values, enums.
    Varint(u64),
    /// Eight bytes; no field that is read here has them.
    Fixed64,
    /// Strings, bytes and messages, and where they begin in the file.
    Bytes { bytes: &'a [u8], at: usize },
    /// Four bytes: floats.
    Fixed32([u8; 4]),
}

/// Where a message stops making sense, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) at: usize,
    pub(crate) reason: &'static str,
}

/// The fields of a message in their order; ends with the first fault.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    at: usize,
    failed: bool,
}

impl<'a> Fields<'a> {
    /// Reads `message`, which begins at byte `at` of the file.
    pub(crate) fn new(message: &'a [u8], at: usize) -> Self {
        Self { rest: message, at, failed: false }
    }

    fn field(&mut self) -> Result<Field<'a>, Malformed> {
        let at = self.at;
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|&number| number > 0);
        let number = number.ok_or(Malformed { at, reason: "a field has no valid number" })?;
        let value = match key & 7 {
            0 => FieldValue::Varint(self.varint()?),
            1 => self.take(8).map(|_| FieldValue::Fixed64)?,
            2 => {
                let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                let at = self.at;
                FieldValue::Bytes { bytes: self.take(length)?, at }
            }
            5 => {
                let bytes = self.take(4)?;
                FieldValue::Fixed32([bytes[0], bytes[1], bytes[2], bytes[3]])
            }
            _ => return Err(Malformed { at, reason: "a field has no known wire type" }),
        };
        Ok(Field { number, value })
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let at = self.at;
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed { at, reason: "a number has more than ten bytes" })
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let reason = "a field goes on behind the end of its message";
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(Malformed { at: self.at, reason })?;
        self.rest = rest;
        self.at += bytes;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        self.failed = field.is_err();
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message: &[u8]) -> Result<Vec<Field<'_>>, Malformed> {
        Fields::new(message, 100).collect()
    }

    #[test]
    fn the_examples_of_the_documentation_hold() {
        // `Test1 { a: 150 }` and `Test2 { b: "testing" }` of the encoding page.
        let number = Field { number: 1, value: FieldValue::Varint(150) };
        assert_eq!(fields(&[0x08, 0x96, 0x01]), Ok(vec![number]));
        let text = FieldValue::Bytes { bytes: b"testing", at: 102 };
        assert_eq!(fields(b"\x12\x07testing"), Ok(vec![Field { number: 2, value: text }]));
    }

    #[test]
    fn broken_messages_say_where() {
        let check = |message: &[u8], at: usize, reason: &str| {
            let malformed = fields(message).unwrap_err();
            assert_eq!((malformed.at, malformed.reason), (at, reason), "{message:x?}");
        };
        check(&[0x08], 101, "a field goes on behind the end of its message");
        check(b"\x12\x07test", 102, "a field goes on behind the end of its message");
        check(
            b"\x12\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01a",
            111,
            "a field goes on behind the end of its message",
        );
        check(&[0x0D, 1, 2], 101, "a field goes on behind the end of its message");
        check(&[0x0B], 100, "a field has no known wire type");
        check(&[0x00, 0x01], 100, "a field has no valid number");
        check(&[0xFF; 12], 100, "a number has more than ten bytes");
    }
}
