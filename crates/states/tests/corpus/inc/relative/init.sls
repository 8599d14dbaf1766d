include:
  - .sibling
  - ..one
relative: test.nop
