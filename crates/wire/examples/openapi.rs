//! Writes the OpenAPI document to stdout, for `scripts/openapi`.

use std::io::Write;

fn main() -> std::io::Result<()> {
    let document = bunraku_wire::endpoints::openapi_document();
    let mut text = serde_json::to_vec_pretty(&document).expect("plain data");
    text.push(b'\n');
    std::io::stdout().write_all(&text)
}
