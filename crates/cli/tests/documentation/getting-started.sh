# The name of the server leads here, and every agent and server has directories of its own.
bunraku() {
    case "$1" in
    server) set -- server --listen 127.0.0.1:0 --name another --data-dir "$PWD/another" ;;
    agent)
        local name
        name=$(printf '%s\n' "$@" | sed -n '/^--name$/{n;p}')
        export BUNRAKU_AGENT_DIR="$PWD/agents/$name" BUNRAKU_STATE_DIR="$PWD/states/$name"
        ;;
    esac
    set -- "${@/#bunraku.example.com:8150/$BUNRAKU_SERVERS}"
    command bunraku "${@/#bunraku.example.com/$BUNRAKU_SERVERS}"
}
token_for() { command bunraku token create --node "$1" 2> /dev/null; }
FINGERPRINT=$(command bunraku token create --json | grep -o 'SHA256:[0-9a-f]*')
# Starts an agent without a token, and waits until its request is there.
request_of() {
    start 'waiting' "bunraku agent --name $1 --server bunraku.example.com --ca-fingerprint $FINGERPRINT"
    until command bunraku cert requests --json | grep -q "$1"; do sleep 0.1; done
}
request_fingerprint() { command bunraku cert requests --json | grep -o 'SHA256:[0-9a-f]*' | head -n 1; }
