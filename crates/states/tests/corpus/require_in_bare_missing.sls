one:
  test.nop:
    - require_in:
      - nowhere
