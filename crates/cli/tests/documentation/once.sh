echo '{"command": ["echo", "creating the database …"]}' > app_1.json
bunraku once define app_1 -f app_1.json
