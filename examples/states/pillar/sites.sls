web:
  sites:
    shop:
      names: [shop.example.net, www.shop.example.net]
      port: 8080
      tls: True
    blog:
      names: [blog.example.net]
      port: 8081
      tls: False
