# The name of the server leads here.
curl() { command curl --fail --silent --show-error --connect-to "bunraku.example.com:8150:$BUNRAKU_SERVERS" "$@"; }
cp "$BUNRAKU_CREDENTIALS/ca.pem" .
hook_secret() { bunraku environment set production --new-hook-secret --json | grep -o '"hook_secret": *"[0-9a-f]*"' | grep -o '[0-9a-f]\{64\}'; }
