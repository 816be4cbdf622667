"""Writes 300 JSON schemas in the shape of those that JSONSchemaBench collects, from a fixed seed.

    python goldens/schemas.py    crates/grammar/tests/data/schemas.json

Needs nothing but Python. The shapes: arguments of functions, flat events with bounded strings and nullable fields,
configuration files with definitions and maps, objects of cluster managers with deep nesting, news content with unions,
recursive trees, and some by hand for single keywords. About one in sixteen has a keyword that no engine can hold while a
text is made, as in the field.
"""

import json
import random
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent / "crates/grammar/tests/data/schemas.json"
DRAFTS = ["http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#",
          "https://json-schema.org/draft/2020-12/schema"]
WORDS = ("name title status owner region count price total address city note label code level kind size color weight"
         " enabled created updated expires source target path image port host user email phone score rating tags items"
         " parent children value key version license author branch commit message quantity currency language").split()
FORMATS = ["date", "date-time", "time", "email", "uri", "uuid", "ipv4", "hostname", "int32", "password", "color"]
PATTERNS = ["^[a-z]+$", "^[A-Z]{3}$", r"^\d{4}-\d{2}$", "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "^#[0-9a-fA-F]{6}$",
            r"^v\d+\.\d+\.\d+$", "^(foo|bar|baz)-[0-9]{1,4}$", r"^\+?[0-9 ()-]{7,15}$", "^S_[A-Z_]+$", "^.{1,12}$",
            r"^\w+@\w+$", "^[^/]+/[^/]+$"]


class Shapes:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def names(self, low, high):
        return self.random.sample(WORDS, self.random.randint(low, high))

    def string(self):
        r = self.random
        kind = r.randrange(8)
        schema = {"type": "string"}
        if kind == 0:
            schema["maxLength"] = r.choice([1, 8, 64, 255, 2048])
        elif kind == 1:
            schema.update(minLength=r.choice([1, 3]), maxLength=r.choice([10, 100]))
        elif kind == 2:
            schema["format"] = r.choice(FORMATS)
        elif kind == 3:
            schema["pattern"] = r.choice(PATTERNS)
        elif kind in (4, 5):
            schema["enum"] = self.names(2, 6)
        return schema

    def number(self):
        r = self.random
        schema = {"type": r.choice(["integer", "number"])}
        kind = r.randrange(6)
        if kind == 0:
            schema.update(minimum=r.choice([0, 1, -90.0]), maximum=r.choice([90, 100, 65535]))
        elif kind == 1:
            schema["minimum"] = 0
        elif kind == 2:
            schema.update(exclusiveMinimum=0, exclusiveMaximum=r.choice([1, 10.5]))
            if schema["type"] == "integer":
                schema.update(exclusiveMaximum=1000)
        elif kind == 3 and schema["type"] == "integer":
            schema["multipleOf"] = r.choice([2, 5, 10])
        return schema

    def leaf(self):
        kind = self.random.randrange(10)
        if kind < 5:
            return self.string()
        if kind < 8:
            return self.number()
        return [{"type": "boolean"}, {"type": "null"}][kind == 9 and self.random.random() < 0.3]

    def array(self, depth):
        r = self.random
        schema = {"type": "array", "items": self.value(depth - 1)}
        if r.random() < 0.5:
            schema["maxItems"] = r.choice([1, 3, 10])
        if r.random() < 0.3:
            schema["minItems"] = 1
        return schema

    def value(self, depth):
        r = self.random.random()
        if depth <= 0 or r < 0.65:
            return self.leaf()
        return self.array(depth) if r < 0.82 else self.object(depth - 1)

    def object(self, depth, low=1, high=5):
        r = self.random
        names = self.names(low, high)
        schema = {"type": "object", "properties": {name: self.value(depth) for name in names}}
        if r.random() < 0.8:
            schema["required"] = r.sample(names, r.randint(1, len(names)))
        if r.random() < 0.5:
            schema["additionalProperties"] = False
        return schema

    def function(self):
        schema = self.object(1, 1, 4)
        for name, inner in schema["properties"].items():
            inner["description"] = f"The {name} to use."
        return schema

    def event(self):
        schema = {"$schema": DRAFTS[1], "description": "An event.", "self": {"vendor": "a.b", "version": "1-0-0"},
                  "type": "object", "additionalProperties": False, "properties": {}}
        for name in self.names(3, 9):
            inner = self.leaf()
            if "type" in inner and "enum" not in inner and self.random.random() < 0.4:
                inner["type"] = [inner["type"], "null"] if inner["type"] != "null" else "null"
            schema["properties"][name] = inner
        schema["required"] = list(schema["properties"])[:2]
        return schema

    def configuration(self):
        r = self.random
        where = r.choice(["$defs", "definitions"])
        names = self.names(2, 4)
        schema = {"$schema": r.choice(DRAFTS[1:]), where: {name: self.object(1) for name in names}, "type": "object",
                  "properties": {}}
        for name in self.names(2, 5):
            kind = r.randrange(4)
            reference = {"$ref": f"#/{where}/{r.choice(names)}"}
            schema["properties"][name] = [reference, {"type": "array", "items": reference, "maxItems": 3},
                                          {"type": "object", "additionalProperties": reference}, self.value(2)][kind]
        if r.random() < 0.5:
            schema["patternProperties"] = {r.choice(["^x-", "^[0-9]+$", "^S_"]): self.leaf()}
            schema["additionalProperties"] = False
        schema["required"] = list(schema["properties"])[:1]
        return schema

    def cluster(self):
        meta = {"type": "object", "properties": {
            "name": {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
            "labels": {"type": ["object", "null"], "additionalProperties": {"type": ["string", "null"]}},
            "generation": {"type": ["integer", "null"], "format": "int64"}}, "required": ["name"]}
        return {"type": "object", "definitions": {"meta": meta, "port": {"oneOf": [{"type": "string"}, {"type": "integer"}]}
                                                  if self.random.random() < 0.1 else
                                                  {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
                "properties": {"apiVersion": {"type": "string", "enum": ["v1"]}, "kind": {"const": "Thing"},
                               "metadata": {"$ref": "#/definitions/meta"}, "spec": self.object(3, 2, 6),
                               "port": {"$ref": "#/definitions/port"}},
                "required": ["kind", "metadata", "spec"], "additionalProperties": False}

    def union(self):
        r = self.random
        options = []
        for name in self.names(2, 4):
            inner = self.object(1)
            inner["properties"] = {"type": {"const": name}, **inner["properties"]}
            inner["required"] = ["type", *inner.get("required", [])]
            options.append(inner)
        items = {"type": "array", "items": {"anyOf": options}, "minItems": 1, "maxItems": 4}
        return {"type": "object", "properties": {"title": {"type": "string"}, "content": items},
                "required": ["content"], "additionalProperties": r.random() < 0.2}

    def tree(self):
        r = self.random
        node = self.object(0, 1, 3)
        node["properties"]["children"] = {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": r.choice([2, 4])}
        if r.random() < 0.5:
            node["properties"]["next"] = {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}
        return {"$defs": {"node": node}, "$ref": "#/$defs/node"}

    def merged(self):
        base, more = self.object(1), self.object(1)
        for one in (base, more):
            one.pop("additionalProperties", None)
        more["properties"] = {f"{name}_2": inner for name, inner in more["properties"].items()}
        more["required"] = [f"{name}_2" for name in more.get("required", [])]
        return {"allOf": [base, more]}

    def refused(self):
        """One keyword that can't be held, at a random place."""
        r = self.random
        schema = self.object(1, 2, 4)
        name = next(iter(schema["properties"]))
        kind = r.randrange(6)
        if kind == 0:
            schema["properties"][name] = {"type": "array", "items": self.leaf(), "uniqueItems": True}
        elif kind == 1:
            schema["not"] = {"required": [name]}
        elif kind == 2:
            schema.update({"if": {"required": [name]}, "then": {"required": ["x"]}})
        elif kind == 3:
            schema["propertyNames"] = {"pattern": "^[a-z]+$"}
        elif kind == 4:
            schema["properties"][name] = {"type": "array", "contains": {"type": "integer"}}
        else:
            schema["dependentRequired"] = {name: ["x"]}
        return schema


BY_HAND = [
    True, {}, {"type": "object"}, {"type": "array"}, {"type": "string"}, {"type": "number"}, {"type": "integer"},
    {"type": "boolean"}, {"type": "null"}, {"type": ["string", "number", "null"]},
    {"const": {"a": [1, 2.5, None, "x\"y\\z\n"]}}, {"enum": [1, "1", None, True, [1], {"a": 1}]},
    {"type": "array", "prefixItems": [{"type": "string", "maxLength": 5}, {"type": "integer"}], "items": False},
    {"type": "array", "prefixItems": [{"const": 1}], "items": {"type": "boolean"}, "maxItems": 4},
    {"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "maxItems": 3}, "minItems": 3, "maxItems": 3},
    {"type": "string", "minLength": 5, "maxLength": 5}, {"type": "string", "maxLength": 100000},
    {"type": "string", "pattern": "^(a+)+$"}, {"type": "string", "pattern": "b"}, {"type": "string", "pattern": "^a|b$"},
    {"type": "string", "pattern": "^é+🦀?$"}, {"type": "string", "pattern": r"^\p{L}{2,5}$"},
    {"type": "string", "format": "date-time"}, {"type": "string", "format": "ipv6"}, {"type": "string", "format": "uuid"},
    {"type": "string", "format": "email", "maxLength": 30}, {"type": "string", "format": "date", "pattern": "^2"},
    {"type": "integer", "minimum": -5, "maximum": 5}, {"type": "number", "minimum": 0.5, "maximum": 0.75},
    {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 100}, {"type": "number", "multipleOf": 0.25},
    {"type": "object", "properties": {"a\"b": {"type": "integer"}, "ü": {"type": "integer"}}, "required": ["a\"b", "ü"]},
    {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 1},
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "object", "patternProperties": {"^a": {"type": "integer"}, "^b": {"type": "string"}}, "additionalProperties": False},
    {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}]},
    {"type": "object", "properties": {"self": {"$ref": "#"}, "n": {"type": "integer"}}, "additionalProperties": False},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "integer"}}},
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 9}]},
    {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    {"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]},
               {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}]},
    {"type": "object", "nullable": True, "properties": {"x": {"type": "string", "example": "e", "deprecated": True}}},
    {"type": "array", "uniqueItems": False, "items": {"enum": ["a", "b"]}},
    {"enum": [f"choice {n}" for n in range(500)]},
    {"type": "object", "properties": {f"field_{n}": {"type": "integer"} for n in range(60)}},
    {"type": "object", "properties": {"a": {"not": {}}}, "required": ["a"]},
    {"type": "string", "format": "regex"}, {"$ref": "https://example.com/schema.json"}, {"$ref": "#/$defs/missing"},
    {"type": "integer", "minimum": 5, "maximum": 3},
]
SHARES = [("function", 60), ("event", 45), ("configuration", 45), ("cluster", 25), ("union", 25), ("tree", 25),
          ("merged", 11), ("refused", 14)]


def main():
    cases = [{"name": f"by hand {number}", "schema": schema} for number, schema in enumerate(BY_HAND)]
    for shape, count in SHARES:
        for number in range(count):
            shapes = Shapes(f"{shape} {number}")
            cases.append({"name": f"{shape} {number}", "schema": getattr(shapes, shape)()})
    assert len(cases) == 300, len(cases)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    OUT.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
