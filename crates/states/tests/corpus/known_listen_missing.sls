one:
  test.nop:
    - listen:
      - test: nowhere
