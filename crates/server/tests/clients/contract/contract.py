"""What schemathesis checks beside its own: why a body that fits the document may be refused at all.

Loaded by schemathesis (`SCHEMATHESIS_HOOKS`). The document has every name, kind and range; so a body that fits it is
refused only for what the document can't say: what depends on the model (its vocabulary, its context, its template) or
on several parameters together.
"""

import schemathesis

# The codes of refusals for what no document of names, kinds and ranges says; docs/server.md has them in a table.
BEYOND_THE_DOCUMENT = {"context_length_exceeded", "invalid_request", "unsupported_by_model"}


@schemathesis.check
def fitting_bodies_are_refused_for_what_depends_on_more(context, response, case):
    if case.meta is None or not case.meta.generation.mode.is_positive or response.status_code != 400:
        return
    error = response.json()["error"]
    if error["code"] not in BEYOND_THE_DOCUMENT:
        raise AssertionError(f"a body that fits the document was refused as {error['code']}: {error['message']}")
