# The example's site, on the nodes of these pages.
sed -e s/dev1.devco.net/db-1.example.com/ -e s/dev2.devco.net/web-1.example.com/ \
  -e s/dev3.devco.net/web-2.example.com/ -e s/dev4.devco.net/lb01.example.com/ \
  examples/site/manifests/site.pp > site.pp
ln -s examples/site/modules modules
