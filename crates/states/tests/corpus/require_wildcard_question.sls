a1: test.nop
a2: test.nop
b:
  test.nop:
    - require:
      - test: a?
