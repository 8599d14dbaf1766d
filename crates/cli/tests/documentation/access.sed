s|/var/lib/bunraku/server/operator|"$BUNRAKU_CREDENTIALS"|
