s/"\$SECRET"/"$(hook_secret)"/
s|https://SERVER:8150|https://bunraku.example.com:8150|
