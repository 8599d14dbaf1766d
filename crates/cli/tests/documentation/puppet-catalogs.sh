# A catalog as Puppet compiles it, for a file in this directory.
mkdir -p production/modules/motd/files/etc
echo welcome > production/modules/motd/files/etc/motd
cat > catalog.json <<CATALOG
{"tags": ["settings"], "name": "web-1.example.com", "version": 1794803478, "code_id": null,
 "catalog_uuid": "3e1c2f6e-8a54-4c2b-9d0a-0f6a54d0b1aa", "catalog_format": 1, "environment": "production",
 "resources": [
  {"type": "Stage", "title": "main", "tags": ["stage"], "exported": false, "parameters": {"name": "main"}},
  {"type": "Class", "title": "Settings", "tags": ["class", "settings"], "exported": false},
  {"type": "File", "title": "$PWD/motd", "tags": ["file"], "exported": false, "file": "site.pp", "line": 1,
   "parameters": {"ensure": "file", "content": "hello\n"}}],
 "edges": [{"source": "Stage[main]", "target": "Class[Settings]"}], "classes": ["settings"]}
CATALOG
