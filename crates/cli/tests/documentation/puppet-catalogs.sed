s|/etc/puppetlabs/code/environments/production|production|
