root: ''
timezone: Etc/UTC
web:
  manage_service: False
  workers: 4
database:
  port: 5432
  max_connections: 100
