s/BUNRAKU_TOKEN=… bunraku agent --name \([^ ]*\)/BUNRAKU_TOKEN=$(token_for \1) bunraku agent --name \1/
/--ca-fingerprint/s/SHA256:…/$FINGERPRINT/
/cert sign/s/SHA256:…/$(request_fingerprint)/
/^bunraku cert requests$/i\
request_of web-2.example.com
