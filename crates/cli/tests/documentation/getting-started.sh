# The name of the server leads here.
bunraku() { command bunraku "${@/#bunraku.example.com/$BUNRAKU_SERVERS}"; }
