typed:
  test.check_pillar:
    - boolean: flag
    - integer: number
