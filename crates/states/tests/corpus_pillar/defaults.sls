web:
  port: 80
  host: example.net
