mkdir module-keys
# Copies the key as soon as there is one, as the page says.
bunraku() {
    if [ "$1 $2" = 'module install' ]; then cp author.pub module-keys/; fi
    command bunraku "$@"
}
printf 'port = 1\n' > app.ini
echo '{"name": "web-1", "version": "1", "environment": "production", "resources": [{"type": "Ini_setting", "title": "port", "parameters": {"path": "'"$PWD"'/app.ini", "section": "", "setting": "port", "value": "8150"}}], "edges": [], "classes": []}' > catalog.json
