//! Whether a document is what a schema asks for, by a library that knows nothing of grammars.

use boon::{Compiler, Draft, SchemaIndex, Schemas};
use serde_json::Value;

/// A schema, ready.
pub(crate) struct Validator {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Validator {
    pub(crate) fn new(schema: &Value) -> Self {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.set_default_draft(Draft::V2020_12);
        compiler.enable_format_assertions();
        compiler.add_resource("schema.json", schema.clone()).unwrap();
        let index =
            compiler.compile("schema.json", &mut schemas).unwrap_or_else(|error| panic!("{error}: {schema}"));
        Self { schemas, index }
    }

    /// What is wrong with a document.
    pub(crate) fn validate(&self, document: &Value) -> Result<(), String> {
        self.schemas.validate(document, self.index).map_err(|error| error.to_string())
    }
}
