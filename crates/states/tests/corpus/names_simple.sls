many:
  test.nop:
    - names:
      - one
      - two
      - three
after: test.nop
