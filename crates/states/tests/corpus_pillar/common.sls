include:
  - defaults
web:
  port: 8080
  names: [a, b]
flag: True
number: 5
word: hello
list: [x, y]
