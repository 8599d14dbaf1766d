# The name of the server leads here.
curl() { command curl --fail --silent --show-error --connect-to "bunraku.example.com:8150:$BUNRAKU_SERVERS" "$@"; }
cp "$BUNRAKU_CREDENTIALS"/*.pem .
