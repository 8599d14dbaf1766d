//! Prints the OpenAPI document: `scripts/openapi` writes it to `docs/openapi.json`.

fn main() {
    let document = bunraku_wire::endpoints::openapi_document();
    let text = serde_json::to_string_pretty(&document).expect("plain data");
    println!("{text}");
}
