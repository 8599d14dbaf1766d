printf '[server]\nlisten = "127.0.0.1:8150"\n' > bunraku.toml
