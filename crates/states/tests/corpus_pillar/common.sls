include:
  - defaults
web:
  port: 8080
  names: [a, b]
flag: True
number: 5
word: hello
list: [x, y]
unsorted: {b: 1, a: [3, {z: 1, y: 2}]}
timezone: Europe/Berlin
