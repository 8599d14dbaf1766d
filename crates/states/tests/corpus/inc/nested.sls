include:
  - .deeper
nested own: test.nop
