include:
  - inc.one
first:
  test.nop:
    - require_in:
      - sls: inc.one
